"""Plans on real gpus: what they compute, how long they take, and how far a simulation is off."""
