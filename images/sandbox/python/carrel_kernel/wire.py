"""JSON of the messages: always valid UTF-8, whatever the text was."""

import codecs
import json

from jupyter_client.jsonutil import json_clean, json_default


def _escape(error):
    """Lone surrogates, inside a JSON string: shown as the text \\udcff, which every parser accepts."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(f"\\\\u{ord(c):04x}" for c in error.object[error.start : error.end]), error.end


codecs.register_error("carrel_json", _escape)


def _dump(obj):
    return json.dumps(obj, default=json_default, ensure_ascii=False, allow_nan=False).encode("utf-8", "carrel_json")


def pack(obj):
    try:
        return _dump(obj)
    except (TypeError, ValueError):  # NaN, keys that are no strings, ...
        return _dump(json_clean(obj))
