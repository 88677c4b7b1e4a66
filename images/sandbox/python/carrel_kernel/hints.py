"""One line of help for a module that is not there."""

import importlib.util
import os

# Names under which pip knows what is imported under another name.
_PIP_NAMES = {
    "bs4": "beautifulsoup4",
    "Crypto": "pycryptodome",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "jwt": "pyjwt",
    "PIL": "pillow",
    "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}

IFF_UP = 1


def has_network(directory="/sys/class/net"):
    """Whether an interface beside loopback is up (the kernel shows unused tunnel devices everywhere)."""
    try:
        names = os.listdir(directory)
    except OSError:
        return False
    for name in names:
        if name == "lo":
            continue
        try:
            with open(f"{directory}/{name}/flags", encoding="ascii") as f:
                if int(f.read(), 16) & IFF_UP:
                    return True
        except (OSError, ValueError):
            pass
    return False


def install_hint(module, network=None):
    """A sentence for the ModuleNotFoundError of this module, or None if installing is not the answer."""
    if not module:
        return None
    top = module.partition(".")[0]
    try:
        if importlib.util.find_spec(top) is not None:
            return None  # the package is there, the submodule is not
    except (ImportError, ValueError, AttributeError):
        return None
    name = _PIP_NAMES.get(top, top)
    if has_network() if network is None else network:
        return f"{top} is not installed. Install it with: pip install {name}"
    return f"This sandbox has no network; {name} is not installed and cannot be installed here."
