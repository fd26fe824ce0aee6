"""The face: Django project, storefront, admin and the gate. Never starts a process."""
