"""An entry point whose import never ends."""

import signal

while True:
    signal.pause()
