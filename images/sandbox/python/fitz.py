"""The older name of pymupdf, which Debian's package leaves out and most examples use."""

import sys

import pymupdf

sys.modules[__name__] = pymupdf
