"""What accompanies a run: hooks, progress, samples, the page in Locust's web view, the verdict at its end."""
