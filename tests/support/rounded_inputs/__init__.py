"""rounded_inputs: a lossy technique of the tests alone: a block's input goes through bf16."""
