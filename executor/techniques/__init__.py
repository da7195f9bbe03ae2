"""How each technique runs on real ranks."""
