# How a layer sees only what lies below it. Includes are written from the top ("api/base/err.h").
# Each target gets one include folder, inc/TARGET in the build folder, that holds links to just the
# folders it may see. Libraries whose headers lie in the compiler's own search path cannot be hidden
# that way, so a target that must not use one finds a header of that name that refuses.

set(hanse_headers_raft raft.h raft/uv.h raft/fixture.h)
set(hanse_headers_curl curl/curl.h curl/multi.h curl/easy.h)
set(hanse_headers_uv uv.h)
set(hanse_headers_openssl openssl/ssl.h openssl/evp.h openssl/err.h openssl/bio.h openssl/x509.h
    openssl/rand.h openssl/sha.h openssl/hmac.h)

# hanse_sees(TARGET SEES folder... FORBIDS library...)
function(hanse_sees target)
    cmake_parse_arguments(arg "" "" "SEES;FORBIDS" ${ARGN})
    set(inc ${CMAKE_BINARY_DIR}/inc/${target})
    foreach(folder IN LISTS arg_SEES)
        cmake_path(GET folder PARENT_PATH parent)
        file(MAKE_DIRECTORY ${inc}/${parent})
        file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${folder} ${inc}/${folder} SYMBOLIC)
    endforeach()
    foreach(library IN LISTS arg_FORBIDS)
        foreach(header IN LISTS hanse_headers_${library})
            file(CONFIGURE OUTPUT ${inc}/${header}
                CONTENT "#error \"${target} must not include <${header}>: see CMakeLists.txt\"\n")
        endforeach()
    endforeach()
    target_include_directories(${target} PRIVATE ${inc})
    target_compile_options(${target} PRIVATE -ffile-prefix-map=${inc}/=)
endfunction()

# hanse_static(TARGET SOURCES file... SEES folder... FORBIDS library...): a library for executables
# that need no other file of their machine; they are linked statically, and without sanitizers. What
# nothing in them calls is left out.
function(hanse_static target)
    cmake_parse_arguments(arg "" "" "SOURCES;SEES;FORBIDS" ${ARGN})
    add_library(${target} STATIC ${arg_SOURCES})
    hanse_sees(${target} SEES ${arg_SEES} FORBIDS ${arg_FORBIDS})
    target_compile_options(${target} PUBLIC -ffunction-sections -fdata-sections)
    target_link_options(${target} PUBLIC -static-pie -Wl,--gc-sections)
    if(HANSE_SANITIZE)
        target_compile_options(${target} PUBLIC -fno-sanitize=all)
        target_link_options(${target} PUBLIC -fno-sanitize=all)
    endif()
    target_link_libraries(${target} PUBLIC hanse_static_libraries)
endfunction()

# hanse_layer(TARGET [OBJECT] SOURCES file... SEES folder... FORBIDS library... LINKS target...)
# Also declares TARGET's part of the headers-selfcontained check.
function(hanse_layer target)
    cmake_parse_arguments(arg "OBJECT" "" "SOURCES;SEES;FORBIDS;LINKS" ${ARGN})
    # A layer may be empty for a while; CMake refuses a library without a source.
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/empty.c
        CONTENT "typedef int hanse_layer_is_empty;\n")
    if(arg_OBJECT)
        add_library(${target} OBJECT ${arg_SOURCES} ${CMAKE_BINARY_DIR}/empty.c)
    else()
        add_library(${target} STATIC ${arg_SOURCES} ${CMAKE_BINARY_DIR}/empty.c)
    endif()
    hanse_sees(${target} SEES ${arg_SEES} FORBIDS ${arg_FORBIDS})
    target_link_libraries(${target} PUBLIC ${arg_LINKS})
endfunction()
