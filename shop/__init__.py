"""The Django project: sales, orders, payments, pages, staff, and the gate in front of Django. Starts no process."""
