# Everything that the merged packs need, for a program that is linked statically: it compiles these sources itself, and
# links the archives of zstd and libcrypto. set(merged_pack_sources)
set(merged_pack_sources)
foreach(name base/digest base/error base/escape base/os/fd base/os/file_tree base/os/files base/os/mount
    base/os/open_beneath base/os/xattr base/parts base/utf8
    layers/node layers/overlay_lookup layers/sorted_names
    packs/attributes packs/delta_pack packs/frame_reader packs/zstd_frame
    packs/merged/applier packs/merged/merged_digest packs/merged/finder packs/merged/sent_list)
  if(EXISTS ${PROJECT_SOURCE_DIR}/${name}.cc)
    list(APPEND merged_pack_sources ${PROJECT_SOURCE_DIR}/${name}.cc)
  endif()
endforeach()
