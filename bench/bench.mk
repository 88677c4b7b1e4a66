# Figures, not tests: run them on an idle machine.

.PHONY: bench
bench: build images
	/usr/bin/python3 bench/warm.py
