/* Certificates that are taken back before they expire: a CertificateRevocation names one by its
 * fingerprint, or all of a name that are older than a time. Whoever takes certificates asks
 * here. */
#include "api/schema/schema.h"

#include "api/base/loop/loop.h"

#include <ctype.h>
#include <string.h>

/* Without its colons, in lower case; false: it is none. */
static bool fingerprint_read(const char *s, char out[65])
{
    size_t n = 0;

    for (; *s; s++) {
        if (*s == ':')
            continue;
        if (!isxdigit((unsigned char)*s) || n == 64)
            return false;
        out[n++] = (char)tolower((unsigned char)*s);
    }
    out[n] = 0;
    return n == 64;
}

int revocation_admit(const struct object *o, struct err *err)
{
    const struct certificate_revocation_spec *s = object_as(o, certificate_revocation)->spec;
    char hex[65];

    if (!*s->fingerprint == !*s->commonName)
        return err_field(err, E_INVALID, "spec.fingerprint",
                         "give either the certificate's fingerprint or a commonName");
    if (*s->fingerprint && !fingerprint_read(s->fingerprint, hex))
        return err_field(err, E_INVALID, "spec.fingerprint",
                         "expected 64 hexadecimal digits: openssl x509 -in FILE -noout "
                         "-fingerprint -sha256 prints them");
    if (!strncmp(s->commonName, "member:", 7))
        return err_field(err, E_INVALID, "spec.commonName",
                         "members are let in by their membership: hanse members remove takes one "
                         "out");
    if (s->issuedBefore && !*s->commonName)
        return err_field(err, E_INVALID, "spec.issuedBefore", "goes with a commonName");
    return 0;
}

bool revocation_takes(const struct object *o, const struct peer_identity *who)
{
    const struct certificate_revocation_spec *s = object_as(o, certificate_revocation)->spec;
    char hex[65];

    if (!who->certified)
        return false;
    if (*s->fingerprint)
        return fingerprint_read(s->fingerprint, hex) && !strcmp(hex, who->fingerprint);
    return *s->commonName && !strcmp(s->commonName, who->name) &&
           (!s->issuedBefore || who->not_before_ms < s->issuedBefore);
}
