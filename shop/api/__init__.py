"""The JSON API that Django answers: what is rare, under the same contract as the gate's answers."""
