"""From a picture's bytes to a grid in the store; core.images and core.grids do the single picture and the single grid."""
