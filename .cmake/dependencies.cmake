# Every library, its least version, and the Debian package that brings it. All that is missing is
# reported at once: nobody should have to run the configure step five times.
find_package(PkgConfig)
if(NOT PkgConfig_FOUND)
    message(FATAL_ERROR "pkg-config is missing. Install pkg-config, or run deploy/packages.sh")
endif()
find_package(Threads REQUIRED)

set(hanse_missing "")
set(hanse_wanted "")

# hanse_pkg(NAME MODULE VERSION PACKAGE): imported target PkgConfig::NAME, or a line for the report.
macro(hanse_pkg name module version package)
    if(${ARGC} GREATER 4)
        set(${name}_from " ${ARGV4}")
    else()
        set(${name}_from "")
    endif()
    pkg_check_modules(${name} QUIET IMPORTED_TARGET ${module}>=${version})
    if(${name}_FOUND)
        string(APPEND hanse_wanted " ${module} ${${name}_VERSION},")
    else()
        string(APPEND hanse_missing
            "  ${module} >= ${version}: install ${package}${${name}_from}\n")
    endif()
endmacro()

hanse_pkg(uv libuv 1.44 libuv1-dev)
hanse_pkg(raft raft 0.22.1 libraft-dev "(in Debian 12 from bookworm-backports)")
hanse_pkg(cjson libcjson 1.7.15 libcjson-dev)
hanse_pkg(yaml yaml-0.1 0.2.5 libyaml-dev)
hanse_pkg(openssl openssl 3.0 libssl-dev)
hanse_pkg(curl libcurl 7.88 libcurl4-openssl-dev)
hanse_pkg(zlib zlib 1.2.11 zlib1g-dev)
if(HANSE_TESTS)
    hanse_pkg(cmocka cmocka 1.1.5 libcmocka-dev)
endif()

# The HTTP parser: llhttp where there is one, else http_parser, which has no .pc file.
find_path(HANSE_LLHTTP_INCLUDE llhttp.h)
find_library(HANSE_LLHTTP_LIBRARY llhttp)
find_path(HANSE_HTTP_PARSER_INCLUDE http_parser.h)
find_library(HANSE_HTTP_PARSER_LIBRARY http_parser)
mark_as_advanced(HANSE_LLHTTP_INCLUDE HANSE_LLHTTP_LIBRARY
    HANSE_HTTP_PARSER_INCLUDE HANSE_HTTP_PARSER_LIBRARY)
add_library(hanse_http_parser INTERFACE)
if(HANSE_LLHTTP_INCLUDE AND HANSE_LLHTTP_LIBRARY)
    target_include_directories(hanse_http_parser SYSTEM INTERFACE ${HANSE_LLHTTP_INCLUDE})
    target_link_libraries(hanse_http_parser INTERFACE ${HANSE_LLHTTP_LIBRARY})
    target_compile_definitions(hanse_http_parser INTERFACE HANSE_HAVE_LLHTTP=1)
    string(APPEND hanse_wanted " llhttp")
elseif(HANSE_HTTP_PARSER_INCLUDE AND HANSE_HTTP_PARSER_LIBRARY)
    target_link_libraries(hanse_http_parser INTERFACE ${HANSE_HTTP_PARSER_LIBRARY})
    string(APPEND hanse_wanted " http_parser")
else()
    string(APPEND hanse_missing
        "  http_parser or llhttp: install libhttp-parser-dev (or libllhttp-dev)\n")
endif()

# What hanse-run links statically. There is no static libcjson in Debian: connectors/static/nodes.c.
add_library(hanse_static_libraries INTERFACE)
if(HANSE_STATIC_RUNNER)
    foreach(row IN ITEMS "uv_a|uv.h|libuv1-dev" "cares|ares.h|libc-ares-dev"
            "ssl|openssl/ssl.h|libssl-dev" "crypto|openssl/crypto.h|libssl-dev"
            "z|zlib.h|zlib1g-dev")
        string(REPLACE "|" ";" row ${row})
        list(GET row 0 name)
        list(GET row 1 header)
        list(GET row 2 package)
        find_library(HANSE_STATIC_${name} lib${name}.a)
        find_path(HANSE_STATIC_${name}_INCLUDE ${header})
        mark_as_advanced(HANSE_STATIC_${name} HANSE_STATIC_${name}_INCLUDE)
        if(HANSE_STATIC_${name} AND HANSE_STATIC_${name}_INCLUDE)
            target_link_libraries(hanse_static_libraries INTERFACE ${HANSE_STATIC_${name}})
        else()
            string(APPEND hanse_missing "  lib${name}.a: install ${package}, or configure with "
                "-DHANSE_STATIC_RUNNER=OFF (then there is no hanse-run)\n")
        endif()
    endforeach()
    target_link_libraries(hanse_static_libraries INTERFACE Threads::Threads m)
endif()

if(hanse_missing)
    message(FATAL_ERROR "Libraries are missing:\n${hanse_missing}"
        "deploy/packages.sh installs all of them on Debian.")
endif()
message(STATUS "Libraries:${hanse_wanted}")
