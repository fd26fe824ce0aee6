#!/usr/bin/env python3
"""Runs every administrative command of the shop; holds no logic of its own."""

from workers.__main__ import main

if __name__ == "__main__":
    main()
