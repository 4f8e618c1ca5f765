"""Commands around a layout change: plan, make, watch and give up."""
