"""Upper ends of counts that come from files, configurations and command lines.

Far above what anyone uses, and low enough that a small file cannot ask for more work or memory than a machine has.
"""

MOST = 1_000_000  # units, channels, classes, epochs, images of a batch
MOST_REPEATS = 256  # layers, blocks, steps, members of an ensemble
MOST_ITERATIONS = 1000  # of a routing
MOST_SIDE = 4096  # pixels
MOST_PIXELS = 2**20  # of a network's input
LONGEST = 64  # numbers in one option, such as the widths of the layers
