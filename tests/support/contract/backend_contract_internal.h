/* What the files of the backend's contract share. */
#ifndef HANSE_TESTS_SUPPORT_BACKEND_CONTRACT_INTERNAL_H
#define HANSE_TESTS_SUPPORT_BACKEND_CONTRACT_INTERNAL_H

#include "tests/support/contract/backend_contract.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#define NS "default"

struct contract_answer { /* of any call */
    struct backend *b;
    bool done;
    int code;
    struct err err;
    uint64_t rv;
    size_t op;
    bool unchanged;
    struct view *view; /* a reference */
    char json[2048];
};
void contract_await(struct backend_rig *r, struct contract_answer *a);
void contract_answer_fini(struct contract_answer *a);
#define AUTO_ANSWER __attribute__((cleanup(contract_answer_fini))) struct contract_answer

struct object *contract_object(enum kind_id kind, const char *json);
/* The op takes the object over; o NULL is a Dataset to be deleted. */
struct api_write_op contract_op(enum api_write_verb verb, const char *name, struct object *o);
/* Waits for the answer; returns its code. Objects of the ops are let go. */
int contract_write_all(struct backend_rig *r, const struct api_write *w, struct contract_answer *a);
int contract_write(struct backend_rig *r, struct api_write_op op, struct contract_answer *a);

struct contract_listed {
    char text[256];
    int n, stop_after;
};
bool contract_list(const struct object *o, void *arg); /* "NS/NAME " each */

#endif
