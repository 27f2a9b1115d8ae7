"""What the Conductor is measured against: one file for each baseline."""
