"""python3 -P -m carrel_kernel -f CONNECTION_FILE

-P keeps the working directory out of sys.path until everything the kernel needs is loaded: a random.py among the
user's files must not break the start. The user's site directory is kept out for the same time: somebody who installs
another ipykernel there must still get a kernel after a restart.
"""

import os
import site
import sys


def _user_site():
    """Makes the directory of "pip install --user", so that what is installed later can be imported at once."""
    path = site.getusersitepackages()
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as e:
        print(f"no user site directory: {e}", file=sys.stderr)
    return path


def main():
    user_site = _user_site()
    sys.path[:] = [p for p in sys.path if p != user_site and not p.startswith(user_site + os.sep)]

    from carrel_kernel import lean

    lean.load()
    from carrel_kernel.app import App

    # Where site would have put it: before the first directory of installed packages.
    at = next((i for i, p in enumerate(sys.path) if p.endswith("dist-packages")), len(sys.path))
    sys.path.insert(at, user_site)

    app = App.instance()
    app.initialize(sys.argv[1:])
    app.start()


if __name__ == "__main__":
    main()
