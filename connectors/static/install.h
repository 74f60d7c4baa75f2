/* `hanse-run install`: what brings the runner into a pod of any image (README.md). Exit status. */
#ifndef HANSE_CONNECTORS_STATIC_INSTALL_H
#define HANSE_CONNECTORS_STATIC_INSTALL_H

int install_main(int argc, char **argv);

#endif
