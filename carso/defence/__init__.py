"""The method: four steps, from images to one robust prediction. Start with `defence.py`."""
