/*===- workspace.h - the layout of workspaces ---------------------------------------------------------===*
 *
 * Every rank has a slab of this layout in symmetric memory. moe.initialize writes the offsets to metainfo; compilers and callers that want to know
 * them before, or only the size, compute them here. docs/abi.md says what each region holds.
 *
 *===----------------------------------------------------------------------------------------------===*/
#ifndef MOERT_WORKSPACE_H
#define MOERT_WORKSPACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The sizes that a layout follows from: the parameters of moe.initialize. */
typedef struct moert_workspace_info {
  int64_t max_num_tokens, dispatch_bytes_per_token, combine_bytes_per_token, eplb_stats_num_experts, ep_size;
} moert_workspace_info;

/* Metainfo: the byte offset of each region from the start of a rank's slab, the same on all ranks. */
enum {
  MOERT_METAINFO_FLAG_VAL = 0,                  /* u32: epoch of this rank's last dispatch, combine or all-reduce */
  MOERT_METAINFO_LOCAL_TOKEN_COUNTER = 1,       /* u32: reserved */
  MOERT_METAINFO_SEND_COUNTERS = 2,             /* i32[ep_size]: rows sent to each rank */
  MOERT_METAINFO_RECV_COUNTERS = 3,             /* i32[ep_size]: rows received from each rank */
  MOERT_METAINFO_DISPATCH_COMPLETION_FLAGS = 4, /* u32[ep_size]: epoch at which each rank had sent its rows or its part */
  MOERT_METAINFO_COMBINE_COMPLETION_FLAGS = 5,  /* u32[ep_size]: epoch at which each rank had its rows ready */
  MOERT_METAINFO_TOPK_TARGET_RANKS = 6,         /* i32[T][top_k]: rank of each sent row, -1: not sent */
  MOERT_METAINFO_TOPK_SEND_INDICES = 7,         /* i32[T][top_k]: its place among the rows for that rank, -1 likewise */
  MOERT_METAINFO_EPLB_GATHERED_STATS = 8,       /* i32[ep_size][eplb_stats_num_experts]: received from each rank */
  MOERT_METAINFO_PAYLOAD_DATA = 9,              /* receive areas of the payloads, and of the parts of an all-reduce */
  MOERT_METAINFO_COMBINE_DATA = 10,             /* rows that the combine sends back */
  MOERT_METAINFO_ANNOUNCEMENTS = 11,            /* u64[2][ep_size]: hash << 32 | epoch of each rank's call, by parity of the epoch */
  MOERT_METAINFO_COUNT_FLAGS = 12,              /* u32[ep_size]: epoch at which each rank had sent its counts, or begun an all-reduce; on devices
                                                   RECV_COUNTERS of the last dispatch, which peers do not write */
  MOERT_METAINFO_RECV_TOPK_ROWS = 13,           /* i32[ep_size][R][top_k]: expert ids, then rows of the grouped layout, -1: none here */
  MOERT_METAINFO_RECV_TOPK_WEIGHTS = 14,        /* f32[ep_size][R][top_k] */
  MOERT_METAINFO_STATE = 15,                    /* which ranks live, and whether an exchange failed; private */
  MOERT_METAINFO_FIELDS = 16
};

/* Regions behind those of metainfo, which only kernels use. */
enum {
  MOERT_WORKSPACE_DISPATCH_ROW_FLAGS = MOERT_METAINFO_FIELDS, /* u32[ep_size][max_num_tokens]: epoch at which each row had arrived */
  MOERT_WORKSPACE_COMBINE_ROW_FLAGS,                          /* likewise for the rows that a combine brings back */
  MOERT_WORKSPACE_GROUP_COUNTS, /* u64[ep_size][local experts + 1]: epoch << 32 | rows for an expert; last: all rows, without experts unless they are
                                   grouped */
  MOERT_WORKSPACE_RECV_TOPK_INDICES, /* i32[ep_size][R][top_k]: place among the rows of (source, expert) */
  MOERT_WORKSPACE_COMBINE_ARRIVALS,  /* rows that a combine brings back, [ep_size][R], as TOPK_SEND_INDICES counts them */
  MOERT_WORKSPACE_TURNS,             /* counters of the blocks of an exchange or an all-reduce */
  MOERT_WORKSPACE_BLOCK_COUNTS,      /* i32[ep_size + COUNTED_EXPERTS][MOST_BLOCKS]: rows for each rank, and for each expert, of a block's tokens */
  MOERT_WORKSPACE_REDUCTION_PACKETS, /* [2][ep_size]: parts of an all-reduce as each rank sends them, by parity of the epoch */
  MOERT_WORKSPACE_REDUCTION_FLAGS,   /* u32[2][rows][4]: epoch at which each quarter of a row of an all-reduce had arrived */
  MOERT_WORKSPACE_REDUCTION_ROWS,    /* [2][rows]: parts of this rank's tokens, and sums of all tokens */
  MOERT_WORKSPACE_FEW_ROWS,          /* [2][ep_size]: rows of few tokens as each rank sends them, by parity of the epoch; 0 before they come */
  MOERT_WORKSPACE_FIELDS
};
enum {
  MOERT_WORKSPACE_ALIGNMENT = 128, /* of the slab and of each region from DISPATCH_COMPLETION_FLAGS on */
  MOERT_WORKSPACE_MAX_TOP_K = 32,
  MOERT_WORKSPACE_MAX_PAYLOADS = 8,
  MOERT_WORKSPACE_MAX_GROUPED_EXPERTS = 4096, /* n_experts of a dispatch with layout expert_grouped on devices */
  MOERT_WORKSPACE_FEW_TOKENS = 128,           /* R, at most, of exchanges by FEW_ROWS */
  MOERT_WORKSPACE_STATE_BYTES = 256,
  MOERT_WORKSPACE_TURNS_BYTES = 128,
  MOERT_WORKSPACE_COUNTED_EXPERTS = 512, /* n_experts, at most, whose rows blocks of a dispatch count for each other */
  MOERT_WORKSPACE_MOST_BLOCKS = 160      /* blocks, at most, that do */
};

typedef struct moert_workspace_layout {
  int64_t offsets[MOERT_WORKSPACE_FIELDS]; /* metainfo shows the first MOERT_METAINFO_FIELDS */
  int64_t bytes;                           /* of the slab */
} moert_workspace_layout;

static inline int64_t moert_workspace_align(int64_t bytes) {
  return (bytes + MOERT_WORKSPACE_ALIGNMENT - 1) / MOERT_WORKSPACE_ALIGNMENT * MOERT_WORKSPACE_ALIGNMENT;
}

/* What an all-reduce has room for at a time; a call of more tokens is several exchanges. Packets are 16 bytes, of which 12 are data; they come in
 * units of 512 bytes of data, of which a token has an even number. Rows are two for each token, one of a part and one of a sum, and one more for each
 * rank. */
enum {
  MOERT_WORKSPACE_UNIT_DATA = 512,
  MOERT_WORKSPACE_UNIT_BYTES = 704,
  MOERT_WORKSPACE_PACKETS_BYTES = 8 << 20,
  MOERT_WORKSPACE_ROWS_BYTES = 64 << 20,
  MOERT_WORKSPACE_FEW_BYTES = 8 << 20, /* of the rows of few tokens from a rank */
  MOERT_WORKSPACE_QUARTERS = 4
};

static inline int64_t moert_workspace_packet_row(const moert_workspace_info *info) {
  const int64_t pair = 2 * MOERT_WORKSPACE_UNIT_DATA;
  return (info->dispatch_bytes_per_token / pair + (info->dispatch_bytes_per_token % pair != 0)) * 2 * MOERT_WORKSPACE_UNIT_BYTES;
}

static inline int64_t moert_workspace_fit(int64_t bytes, int64_t token, int64_t most) {
  const int64_t fit = bytes / token < 1 ? 1 : bytes / token;
  return fit < most ? fit : most;
}

static inline int64_t moert_workspace_packet_tokens(const moert_workspace_info *info) {
  return moert_workspace_fit(MOERT_WORKSPACE_PACKETS_BYTES / info->ep_size, moert_workspace_packet_row(info), info->max_num_tokens);
}

/* Rows of few tokens go in units of 512 bytes, an even number of them in a combine, and 16 bytes for each unit. */
static inline int64_t moert_workspace_few_bytes(int64_t units) { return moert_workspace_align(units * (MOERT_WORKSPACE_UNIT_DATA + 16)); }

static inline int64_t moert_workspace_few_row(const moert_workspace_info *info) {
  const int64_t unit = MOERT_WORKSPACE_UNIT_DATA, dispatch = info->dispatch_bytes_per_token / unit + MOERT_WORKSPACE_MAX_PAYLOADS;
  const int64_t combine = (info->combine_bytes_per_token / (2 * unit) + (info->combine_bytes_per_token % (2 * unit) != 0)) * 2;
  return moert_workspace_few_bytes(dispatch > combine ? dispatch : combine);
}

/* R, at most, for which there is room; 0: of no token. */
static inline int64_t moert_workspace_few_tokens(const moert_workspace_info *info) {
  const int64_t few = MOERT_WORKSPACE_FEW_TOKENS, most = info->max_num_tokens < few ? info->max_num_tokens : few;
  const int64_t fit = MOERT_WORKSPACE_FEW_BYTES / moert_workspace_few_row(info);
  return fit < most ? fit : most;
}

/* Behind the rows of a rank and a parity are its tokens' choices, two in 16 bytes. */
static inline int64_t moert_workspace_few_choices(const moert_workspace_info *info) {
  return moert_workspace_few_tokens(info) * moert_workspace_few_row(info);
}

/* Of a rank and a parity. */
static inline int64_t moert_workspace_few_area(const moert_workspace_info *info) {
  return moert_workspace_few_choices(info) + moert_workspace_align(moert_workspace_few_tokens(info) * MOERT_WORKSPACE_MAX_TOP_K * 8);
}

static inline int64_t moert_workspace_row_tokens(const moert_workspace_info *info) {
  return moert_workspace_fit(MOERT_WORKSPACE_ROWS_BYTES / 2, info->dispatch_bytes_per_token, info->max_num_tokens);
}

static inline int64_t moert_workspace_rows(const moert_workspace_info *info) { return 2 * moert_workspace_row_tokens(info) + info->ep_size; }

/* The layout for info->ep_size ranks (1 to 64). Within the bounds of moe.initialize's parameters no sum reaches 2^63. */
static inline moert_workspace_layout moert_workspace_lay_out(const moert_workspace_info *info) {
  const int64_t ranks = info->ep_size, words = 4 * ranks, rows = ranks * info->max_num_tokens;
  const int64_t choices = 4 * MOERT_WORKSPACE_MAX_TOP_K * info->max_num_tokens;
  const int64_t combined = moert_workspace_align(rows * info->combine_bytes_per_token), vectors = (info->combine_bytes_per_token + 15) / 16;
  const struct {
    int field;
    int64_t bytes;
  } regions[] = {{MOERT_METAINFO_DISPATCH_COMPLETION_FLAGS, words},
                 {MOERT_METAINFO_COMBINE_COMPLETION_FLAGS, words},
                 {MOERT_METAINFO_TOPK_TARGET_RANKS, choices},
                 {MOERT_METAINFO_TOPK_SEND_INDICES, choices},
                 {MOERT_METAINFO_EPLB_GATHERED_STATS, words * info->eplb_stats_num_experts},
                 {MOERT_METAINFO_ANNOUNCEMENTS, 4 * words},
                 {MOERT_METAINFO_COUNT_FLAGS, words},
                 {MOERT_METAINFO_RECV_TOPK_ROWS, choices * ranks},
                 {MOERT_METAINFO_RECV_TOPK_WEIGHTS, choices * ranks},
                 {MOERT_METAINFO_STATE, MOERT_WORKSPACE_STATE_BYTES},
                 {MOERT_WORKSPACE_DISPATCH_ROW_FLAGS, 4 * rows},
                 {MOERT_WORKSPACE_COMBINE_ROW_FLAGS, 4 * rows},
                 {MOERT_WORKSPACE_GROUP_COUNTS, 8 * (MOERT_WORKSPACE_MAX_GROUPED_EXPERTS + 2 * ranks)},
                 {MOERT_WORKSPACE_RECV_TOPK_INDICES, choices * ranks},
                 {MOERT_WORKSPACE_TURNS, MOERT_WORKSPACE_TURNS_BYTES},
                 {MOERT_WORKSPACE_BLOCK_COUNTS, 4 * (ranks + MOERT_WORKSPACE_COUNTED_EXPERTS) * MOERT_WORKSPACE_MOST_BLOCKS},
                 {MOERT_WORKSPACE_REDUCTION_PACKETS, 2 * ranks * moert_workspace_packet_tokens(info) * moert_workspace_packet_row(info)},
                 {MOERT_WORKSPACE_REDUCTION_FLAGS, 2 * 4 * MOERT_WORKSPACE_QUARTERS * moert_workspace_rows(info)},
                 {MOERT_WORKSPACE_REDUCTION_ROWS, 2 * moert_workspace_rows(info) * moert_workspace_align(info->dispatch_bytes_per_token)},
                 {MOERT_WORKSPACE_FEW_ROWS, 2 * ranks * moert_workspace_few_area(info)},
                 {MOERT_METAINFO_PAYLOAD_DATA,
                  moert_workspace_align(rows * info->dispatch_bytes_per_token) + MOERT_WORKSPACE_MAX_PAYLOADS * MOERT_WORKSPACE_ALIGNMENT},
                 {MOERT_METAINFO_COMBINE_DATA, combined},
                 {MOERT_WORKSPACE_COMBINE_ARRIVALS, moert_workspace_align(16 * rows * vectors)}};
  moert_workspace_layout layout = {{0}, 0};
  int64_t end = 8 + 2 * words; /* FLAG_VAL at 0, LOCAL_TOKEN_COUNTER, SEND_COUNTERS, RECV_COUNTERS */
  size_t i;
  layout.offsets[MOERT_METAINFO_LOCAL_TOKEN_COUNTER] = 4;
  layout.offsets[MOERT_METAINFO_SEND_COUNTERS] = 8;
  layout.offsets[MOERT_METAINFO_RECV_COUNTERS] = 8 + words;
  for (i = 0; i < sizeof(regions) / sizeof(regions[0]); ++i) {
    layout.offsets[regions[i].field] = moert_workspace_align(end);
    end = moert_workspace_align(end) + regions[i].bytes;
  }
  layout.bytes = end;
  return layout;
}

#ifdef __cplusplus
}
#endif
#endif /* MOERT_WORKSPACE_H */
