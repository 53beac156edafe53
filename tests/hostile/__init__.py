"""Attacks that are kept: malformed files, configurations, requests, and kills."""
