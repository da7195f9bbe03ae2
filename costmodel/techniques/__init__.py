"""What each technique costs."""
