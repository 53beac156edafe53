"""Figures: one style, and the plots that runs and experiments share. Matplotlib is imported when something is drawn."""
