"""Pure judgement: step(state, inputs, settings) gives a new state and what is wanted now."""
