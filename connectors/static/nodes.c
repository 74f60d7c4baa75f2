/* The nodes of JSON trees for hanse-run. Debian has no static libcjson; text becomes a tree and a
 * tree text in api/schema/text, which needs of that library no more than these functions. Each does
 * what <cjson/cJSON.h> says of its name, for trees that consist of these nodes alone. */
#include "api/base/mem.h"

#include <cjson/cJSON.h>
#include <string.h>

#define KIND(j) ((j) ? (j)->type & 0xff : cJSON_Invalid)

static cJSON *node(int type)
{
    cJSON *j = mem_new(cJSON);

    j->type = type;
    return j;
}

/* ---- made and freed ---- */
cJSON *cJSON_CreateNull(void)
{
    return node(cJSON_NULL);
}

cJSON *cJSON_CreateTrue(void)
{
    return node(cJSON_True);
}

cJSON *cJSON_CreateFalse(void)
{
    return node(cJSON_False);
}

cJSON *cJSON_CreateArray(void)
{
    return node(cJSON_Array);
}

cJSON *cJSON_CreateObject(void)
{
    return node(cJSON_Object);
}

cJSON *cJSON_CreateNumber(double v)
{
    cJSON *j = node(cJSON_Number);

    j->valuedouble = v;
    j->valueint = v >= INT32_MAX ? INT32_MAX : v <= INT32_MIN ? INT32_MIN : (int)v;
    return j;
}

cJSON *cJSON_CreateString(const char *text)
{
    cJSON *j = node(cJSON_String);

    j->valuestring = mem_strdup(text);
    return j;
}

void cJSON_Delete(cJSON *j)
{
    while (j) {
        cJSON *next = j->next;
        cJSON_Delete(j->child);
        mem_free(j->valuestring);
        mem_free(j->string);
        mem_free(j);
        j = next;
    }
}

/* ---- put together; the first child's prev is the last one ---- */
cJSON_bool cJSON_AddItemToArray(cJSON *parent, cJSON *item)
{
    if (!parent || !item || parent == item)
        return 0;
    if (parent->child) {
        item->prev = parent->child->prev;
        item->prev->next = item;
        parent->child->prev = item;
    } else {
        parent->child = item->prev = item;
    }
    return 1;
}

cJSON_bool cJSON_AddItemToObject(cJSON *object, const char *name, cJSON *item)
{
    if (!object || !name || !item || object == item)
        return 0;
    mem_free(item->string);
    item->string = mem_strdup(name);
    return cJSON_AddItemToArray(object, item);
}

static cJSON *added(cJSON *object, const char *name, cJSON *item)
{
    if (cJSON_AddItemToObject(object, name, item))
        return item;
    cJSON_Delete(item);
    return NULL;
}

cJSON *cJSON_AddNumberToObject(cJSON *object, const char *name, double v)
{
    return added(object, name, cJSON_CreateNumber(v));
}

cJSON *cJSON_AddStringToObject(cJSON *object, const char *name, const char *text)
{
    return added(object, name, cJSON_CreateString(text));
}

cJSON *cJSON_AddArrayToObject(cJSON *object, const char *name)
{
    return added(object, name, cJSON_CreateArray());
}

/* ---- looked at ---- */
int cJSON_GetArraySize(const cJSON *array)
{
    int n = 0;

    for (const cJSON *i = array ? array->child : NULL; i; i = i->next)
        n++;
    return n;
}

cJSON *cJSON_GetObjectItemCaseSensitive(const cJSON *object, const char *name)
{
    cJSON *i = object && name ? object->child : NULL;

    while (i && (!i->string || strcmp(i->string, name) != 0))
        i = i->next;
    return i;
}

cJSON_bool cJSON_IsString(const cJSON *j)
{
    return KIND(j) == cJSON_String;
}

char *cJSON_GetStringValue(const cJSON *j)
{
    return cJSON_IsString(j) ? j->valuestring : NULL;
}

cJSON_bool cJSON_IsNumber(const cJSON *j)
{
    return KIND(j) == cJSON_Number;
}

cJSON_bool cJSON_IsTrue(const cJSON *j)
{
    return KIND(j) == cJSON_True;
}

cJSON_bool cJSON_IsBool(const cJSON *j)
{
    return KIND(j) == cJSON_True || KIND(j) == cJSON_False;
}

cJSON_bool cJSON_IsNull(const cJSON *j)
{
    return KIND(j) == cJSON_NULL;
}

cJSON_bool cJSON_IsArray(const cJSON *j)
{
    return KIND(j) == cJSON_Array;
}

cJSON_bool cJSON_IsObject(const cJSON *j)
{
    return KIND(j) == cJSON_Object;
}
