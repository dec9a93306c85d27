"""How Penstock looks in a terminal: signs, colours, log lines, a live line at the foot, banners and errors."""
