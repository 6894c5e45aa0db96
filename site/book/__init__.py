"""How the notebooks become the pages of a site."""
