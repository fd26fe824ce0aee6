"""The face: Django project, storefront, admin and the gate. Never starts a process.
Called by web servers and workers.
"""
