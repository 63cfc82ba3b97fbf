/* A stand-in for NCCL, for tests alone. Its ranks are threads of one process; a sum is done on the host, over memory of
 * the host, when the last rank asks for it, and stream order does not exist. It is here for what the real library cannot
 * be made to do: start without end, fail at will. STAND_IN says how it behaves (a list of NAME=NUMBER), STAND_IN_LOG where
 * it writes what was called, a line a call.
 *
 *   version=N       ncclGetVersion says N
 *   id_fails=1      there is no id
 *   start_hangs=R   rank R never joins
 *   start_blocks=R  nor does its call return
 *   start_fails=R   rank R's call fails
 *   error_after=N   after N sums, ncclCommGetAsyncError reports an error
 *   sum_fails=N     after N sums, ncclAllReduce fails
 *   sum_hangs=N     after N sums, no sum ends
 *   finalize_hangs=1, abort_hangs=1
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, REMOTE_ERROR = 6, IN_PROGRESS = 7, MAX_RANKS = 64 };

struct id { char bytes[128]; };
struct config { size_t size; unsigned magic, version; int blocking; };
struct group {
    char id[128];
    int num_ranks, num_joined, num_asking, num_sums;
    unsigned char *buffers[MAX_RANKS];
    struct group *next;
};
struct comm { struct group *group; int rank, joined, expected_sums, finalizing; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct group *groups;

/* What STAND_IN says of NAME, or FALLBACK. */
static int behaviour(const char *name, int fallback) {
    const char *text = getenv("STAND_IN"), *found = text ? strstr(text, name) : NULL;
    return found && found[strlen(name)] == '=' ? atoi(found + strlen(name) + 1) : fallback;
}

static void say(const char *call, int rank) {
    const char *path = getenv("STAND_IN_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (log) {
        fprintf(log, "%s %d\n", call, rank);
        fclose(log);
    }
}

int ncclGetVersion(int *version) {
    *version = behaviour("version", 23203);
    return SUCCESS;
}

int ncclGetUniqueId(struct id *id) {
    static int num_ids;
    if (behaviour("id_fails", 0)) return SYSTEM_ERROR;
    pthread_mutex_lock(&lock);
    memset(id, 0, sizeof *id);
    snprintf(id->bytes, sizeof id->bytes, "stand-in %d", ++num_ids);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int ncclCommInitRankConfig(struct comm **comm, int num_ranks, struct id id, int rank, struct config *config) {
    if (config->magic != 0xcafebeef || config->blocking != 0 || num_ranks > MAX_RANKS) return INVALID_ARGUMENT;
    say("start", rank);
    if (rank == behaviour("start_fails", -1)) return SYSTEM_ERROR;
    while (rank == behaviour("start_blocks", -1)) sleep(1);
    pthread_mutex_lock(&lock);
    struct group *group = groups;
    while (group && memcmp(group->id, id.bytes, sizeof group->id)) group = group->next;
    if (!group) {
        group = calloc(1, sizeof *group);
        memcpy(group->id, id.bytes, sizeof group->id);
        group->num_ranks = num_ranks;
        group->next = groups;
        groups = group;
    }
    *comm = calloc(1, sizeof **comm);
    (*comm)->group = group;
    (*comm)->rank = rank;
    if (rank != behaviour("start_hangs", -1)) group->num_joined++;
    pthread_mutex_unlock(&lock);
    return IN_PROGRESS;
}

int ncclCommGetAsyncError(struct comm *comm, int *state) {
    pthread_mutex_lock(&lock);
    struct group *group = comm->group;
    int running = group->num_joined < group->num_ranks || group->num_sums < comm->expected_sums || comm->finalizing;
    int failed = group->num_sums >= behaviour("error_after", 1 << 30);
    *state = failed ? REMOTE_ERROR : running ? IN_PROGRESS : SUCCESS;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, struct comm *comm, void *stream) {
    (void)stream;
    if (from != to || type != 1 || op != 0) return INVALID_ARGUMENT;
    say("sum", comm->rank);
    pthread_mutex_lock(&lock);
    struct group *group = comm->group;
    int failed = group->num_sums >= behaviour("sum_fails", 1 << 30);
    comm->expected_sums = group->num_sums + 1;
    group->buffers[comm->rank] = to;
    if (!failed && group->num_sums < behaviour("sum_hangs", 1 << 30) && ++group->num_asking == group->num_ranks) {
        for (size_t at = 0; at < count; at++) {
            unsigned char sum = 0;
            for (int rank = 0; rank < group->num_ranks; rank++) sum += group->buffers[rank][at];
            for (int rank = 0; rank < group->num_ranks; rank++) group->buffers[rank][at] = sum;
        }
        group->num_asking = 0;
        group->num_sums++;
    }
    pthread_mutex_unlock(&lock);
    return failed ? SYSTEM_ERROR : IN_PROGRESS;
}

int ncclCommFinalize(struct comm *comm) {
    say("finalize", comm->rank);
    comm->finalizing = behaviour("finalize_hangs", 0);
    return IN_PROGRESS;
}

int ncclCommDestroy(struct comm *comm) {
    say("destroy", comm->rank);
    free(comm);
    return SUCCESS;
}

#ifndef WITHOUT_ABORT
int ncclCommAbort(struct comm *comm) {
    say("abort", comm->rank);
    while (behaviour("abort_hangs", 0)) sleep(1);
    free(comm);
    return SUCCESS;
}
#endif

const char *ncclGetErrorString(int code) { return code == REMOTE_ERROR ? "remote error" : "stand-in error"; }

const char *ncclGetLastError(struct comm *comm) { return comm ? "" : "the stand-in was told to"; }
