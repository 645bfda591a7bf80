"""``python -m ficco_sim.cli``."""

import sys

from ficco_sim.cli import main

sys.exit(main())
