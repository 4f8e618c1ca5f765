"""`keyorder doctor`: what on this machine, this cluster and these topics keeps keyorder from its promise."""
