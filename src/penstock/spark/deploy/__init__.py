"""Bring Penstock to executors, and check what they are.

pack.py        an archive of Penstock and its packages for the executors' Python; bootstrap.py is its root
ship.py        pk.ship(spark): add the archive to a running session
preflight.py   run small jobs that report on executors; survey.py is what they run
settings.py    what to_spark requires of a session
"""
