"""CJK glyphs in figures whatever font family a style asks for (seaborn's themes replace the list in matplotlibrc)."""

FALLBACKS = ("WenQuanYi Micro Hei",)


def add_fallbacks(font_manager):
    """Every text may also use the fallback fonts, for the glyphs its own font lacks."""
    find = font_manager.FontManager._find_fonts_by_props

    def with_fallbacks(self, prop, *args, **kwargs):
        found = list(find(self, prop, *args, **kwargs))
        for entry in self.ttflist:
            if entry.name in FALLBACKS and entry.fname not in found:
                found.append(entry.fname)
        return found

    font_manager.FontManager._find_fonts_by_props = with_fallbacks
