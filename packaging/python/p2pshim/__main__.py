"""``python -m p2pshim`` is the command ``p2pshim``."""

from . import main

main()
