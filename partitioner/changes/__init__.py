"""The controllers' side: a change step by step, its plan, re-homing, and when to scale."""
