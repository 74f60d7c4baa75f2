/* The signals by which a program is asked for something, by name and number. */
#ifndef HANSE_CONNECTORS_SIGNALS_H
#define HANSE_CONNECTORS_SIGNALS_H

/* Returns the number of "SIGUSR1" or "USR1"; 0: it is none of these. */
int signal_number(const char *name);
/* Returns the name as `trap` and `kill -s` take it, "USR1"; "": it is none of these. */
const char *signal_name(int number);

#endif
