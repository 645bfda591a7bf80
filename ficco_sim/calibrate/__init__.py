"""From measurements to a machine's profile: what was measured, fits, and how far to trust them."""
