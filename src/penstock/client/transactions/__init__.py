"""Jobs and effects that commit together with what you write to your own database."""
