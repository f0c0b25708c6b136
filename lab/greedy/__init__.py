"""Clients that ask for much at once, and the cases of `make lab-neighbours` that are made of them.

Reading order: frames, producer, client, crowd (the clients), bench (what a case works with), then the cases by what
they strain: selecting, units, reading, administration, connecting, sharing, storing; cases lists them all. Not here:
what is measured beside them (neighbours_measure.py), and what is promised (neighbours_report.py).
"""
