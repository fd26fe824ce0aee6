"""What a control room tells people: the recorded history of a sale, how fast it decides, what to do now."""
