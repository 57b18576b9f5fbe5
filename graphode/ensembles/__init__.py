"""Many members trained as one program."""

from graphode.ensembles.ensemble import Ensemble as Ensemble
from graphode.ensembles.fitting import members_that_fit as members_that_fit
from graphode.ensembles.fitting import programs_beside as programs_beside
from graphode.ensembles.fitting import share_memory as share_memory
