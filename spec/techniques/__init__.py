"""What each technique lets a plan decide."""
