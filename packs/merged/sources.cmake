# Sources of merged packs, for a program that is linked statically: it compiles them itself, and links the archives of
# zstd and libcrypto.
set(merged_pack_sources)
foreach(name base/digest base/error base/escape base/os/fd base/os/file_tree base/os/files base/os/open_beneath
    base/os/xattr base/utf8
    layers/node layers/overlay_lookup layers/sorted_names
    packs/attributes packs/delta_pack packs/frame_reader packs/zstd_frame
    packs/merged/applier packs/merged/entry_sender packs/merged/finder packs/merged/merged_digest
    packs/merged/sent_list packs/merged/tree_listing packs/merged/upper_index)
  list(APPEND merged_pack_sources ${PROJECT_SOURCE_DIR}/${name}.cc)
endforeach()
