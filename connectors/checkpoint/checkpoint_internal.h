/* What the files of connectors/checkpoint share. Nobody else includes it. */
#ifndef HANSE_CONNECTORS_CHECKPOINT_CHECKPOINT_INTERNAL_H
#define HANSE_CONNECTORS_CHECKPOINT_CHECKPOINT_INTERNAL_H

#include "connectors/checkpoint/files/sealfs.h"
#include "connectors/checkpoint/store/store.h"

/* manifest.c */
/* The manifest of a folder: its text, and parsed. ret_facts may be NULL. */
int manifest_load(int dir, struct arena *a, struct file_facts *ret_facts, struct buf *text,
                  struct checkpoint_manifest *ret, struct err *err) MUST_CHECK;

/* seal.c */
/* What a sealer has read lies beside the sealed step: "sSTEP.read", a text of proofs (sealfs.h). */
#define CHECKPOINT_PROOFS_SUFFIX ".read"
void checkpoint_proofs_name(int64_t step, char ret[48]);

/* resume.c */
/* Reads the manifest of a folder; with a digest it must have that. */
int checkpoint_manifest_verify(const char *path, int dir, const char *digest, struct arena *a,
                               struct checkpoint_manifest *ret, struct err *err) MUST_CHECK;

/* view.c */
/* Nothing is left of what was there. */
int checkpoint_view_clear(const char *path, struct err *err) MUST_CHECK;
/* Adds to the view at `path` the folder of that rank, which is verified at `dir`. */
int checkpoint_views_add(const char *path, int64_t rank, const char *dir,
                         struct err *err) MUST_CHECK;

/* publish.c */
/* What lies sealed in `folder` of store_local is in the store when it returns 0: its files first,
 * its manifest last, each verified. Of a directory it is so at once. What is there already is not
 * sent again, also not files that a step before has: `before` is its folder, "" = none is known. */
int checkpoint_publish(struct store *s, const char *folder, const char *before,
                       struct err *err) MUST_CHECK;
/* The folder of that rank in the newest cut before this epoch; "" = there is none. */
int checkpoint_published_before(const struct checkpoint_store *at, int64_t epoch, int64_t rank,
                                char *ret, size_t max, struct err *err) MUST_CHECK;

#endif
